"""Plain values that every other part uses: jobs, states, outcomes, flow, admission, schedules, audit, filters."""
