"""What follows a success.

In:   a job whose attempt succeeded
Out:  the verb that the finishing transition carries: the end, or the next phase
Next: nothing; this is the last of the nine steps

A job outside a pipeline ends here. A job with a phase after the present one will advance to it in the very transaction
that finishes the present one; pipelines, children and follow-up jobs are declared nowhere yet, so that today every
success is the end.
"""

from __future__ import annotations

from windlass.job import Job
from windlass.state import Verb


def after_success(job: Job) -> Verb:
    """The verb of a success."""
    if job.pipeline is None:
        return Verb.SUCCEED
    raise NotImplementedError(f"job {job.id} names the pipeline {job.pipeline!r}, and this version knows no pipelines")
