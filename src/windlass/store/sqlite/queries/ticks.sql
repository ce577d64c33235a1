-- What became of a schedule's ticks, newest first; each kind has an index of its own.   ?1 [{schedule, page}]   ?2 now
SELECT at, outcome, job, noted_at, reason FROM (
    SELECT * FROM (SELECT at, outcome, job, noted_at, reason FROM windlass_ticks
                    WHERE schedule = ?1 ->> '$[0].schedule' AND outcome <> 'by hand'
                    ORDER BY at DESC LIMIT ?1 ->> '$[0].page')
    UNION ALL
    SELECT * FROM (SELECT at, outcome, job, noted_at, reason FROM windlass_ticks
                    WHERE schedule = ?1 ->> '$[0].schedule' AND outcome = 'by hand'
                    ORDER BY at DESC LIMIT ?1 ->> '$[0].page'))
 ORDER BY at DESC, noted_at DESC
 LIMIT ?1 ->> '$[0].page'
