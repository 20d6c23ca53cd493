-- Count the start of rows of a job that was taken before, before they start; fenced.
-- KEYS[1]  wip       ZSET  RQ's registry of executions of the queue
-- KEYS[2]  attempts  HASH  row -> starts
-- ARGV[1]  member    text  job id:execution id
-- ARGV[2+] row       none just says that the job could be read
-- Returns 1, or 0 if the execution is no longer registered.
local wip, attempts = KEYS[1], KEYS[2]
local member = ARGV[1]

if not redis.call('ZSCORE', wip, member) then
  return 0
end
redis.call('HSET', attempts, 'takes', 0)
for position = 2, #ARGV do
  local row = ARGV[position]
  redis.call('HINCRBY', attempts, row, 1)
end
redis.call('EXPIRE', attempts, 86400)
return 1
