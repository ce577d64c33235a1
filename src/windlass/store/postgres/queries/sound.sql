
           AND jobs.fence < 9223372036854775806 AND jobs.attempt < 2147483646
           AND jobs.run_at >= '0001-01-01 00:00+00'
           AND jobs.created_at BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59+00'
           AND (jobs.finished_at IS NULL OR jobs.finished_at BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59+00')
