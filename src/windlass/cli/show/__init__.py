"""What commands print: tables, JSON documents, reports about one job or schedule, and the live log of attempts."""
