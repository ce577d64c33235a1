"""RabbitMQ as a transport: quorum queues by level, publisher confirms, consumers that resume by themselves."""
