-- Redis' clock, read once a script; tests replace the line that reads it.
local time = redis.call('TIME')
local clock_ms = time[1] * 1000 + math.floor(time[2] / 1000)
