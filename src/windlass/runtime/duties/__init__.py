"""What a worker does beside processing jobs, each at its own pace: beat, sweep, timers, schedules, gates, health, …"""
