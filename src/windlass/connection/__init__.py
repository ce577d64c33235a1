"""Enqueues on the caller's own connection (`conn=`): the job commits with the caller's rows, or not at all."""
