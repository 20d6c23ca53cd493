-- The queue: first come, first served, and served by every script that can free capacity.
local SILENT_MS = 12000
local HANDOFFS_MAX = 16
local DROPS_MAX = 200
local MAIL_MS = 60000
local mail, handed = {}, {}
local head_id, head_wait = '', -1

-- Stand at the end of the queue, `head_start_ms` nearer to its front.
function core.park(id, owner, cost, lease_ms, hold_ms, deadline, head_start_ms)
  S.order = max(S.order + 1, S.now * 1000)
  redis.call('ZADD', key_queue, text(S.order - head_start_ms * 1000), id)
  redis.call('HSET', key_calls, id, format('w %s %d %d %d %d %d',
    owner, cost, lease_ms, hold_ms, deadline, S.now))
  redis.call('ZADD', key_owners, text(S.now), owner)
  S.waiting = S.waiting + 1
  S.wait_until = max(S.wait_until, deadline)
  core.reach(deadline)
end

function core.waiter(id)
  local record = redis.call('HGET', key_calls, id)
  if not record then
    return nil
  end
  local owner, cost, lease_ms, hold_ms, deadline, since =
    string.match(record, '^w (%S+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not owner then
    return nil
  end
  return { owner = owner, cost = cost + 0, lease_ms = lease_ms + 0, hold_ms = hold_ms + 0,
    deadline = deadline + 0, since = since + 0 }
end

-- Take an id out of the queue; `ended` also remembers it, so that it cannot come back.
function core.unqueue(id, ended)
  redis.call('ZREM', key_queue, id)
  if ended then
    redis.call('HDEL', key_calls, id)
    redis.call('ZADD', key_leases, text(DONE + S.now), id)
  end
  S.waiting = max(0, S.waiting - 1)
end

local function post(owner, message)
  mail[owner] = mail[owner] or {}
  table.insert(mail[owner], message)
end

local function gone(waiter, caller)
  if waiter.deadline > 0 and waiter.deadline <= S.now then
    return true
  elseif waiter.owner == caller then
    return false
  end
  local seen = redis.call('ZSCORE', key_owners, waiter.owner)
  return not seen or S.now - seen >= SILENT_MS
end

local function hand_over(id, waiter, caller)
  local lease_ms = min(waiter.lease_ms, waiter.hold_ms)
  core.unqueue(id, false)
  local fence = core.grant(id, waiter.cost, lease_ms)
  S.waits, S.wait_ms = S.waits + 1, S.wait_ms + max(0, S.now - waiter.since)
  if waiter.owner == caller then
    table.insert(handed, id)
    table.insert(handed, fence)
    table.insert(handed, lease_ms)
  else
    post(waiter.owner, format('g %s %d %d', id, fence, lease_ms))
  end
end

-- The head's owner is told when the head changes and when its wait becomes shorter.
local function tell_head(id, waiter, wait, caller)
  local at = wait < 0 and 0 or S.now + wait
  if waiter.owner == caller then
    head_id, head_wait = id, wait
  elseif id ~= S.head or (at > 0 and (S.head_at == 0 or at < S.head_at)) then
    post(waiter.owner, format('h %s %d', id, wait))
  else
    return
  end
  S.head, S.head_at = id, at
end

local function deliver()
  local prefix = string.sub(key_state, 1, -6) .. 'm:'
  for owner, messages in pairs(mail) do
    redis.call('RPUSH', prefix .. owner, unpack(messages))
    redis.call('PEXPIRE', prefix .. owner, MAIL_MS)
  end
  mail = {}
end

-- While the head fits, write its lease and tell its owner.
function core.serve(caller)
  local handoffs, drops = 0, 0
  while S.waiting > 0 do
    local id = redis.call('ZRANGE', key_queue, 0, 0)[1]
    if not id or id == SENTINEL then
      S.waiting = 0
      break
    end
    local waiter = core.waiter(id)
    local largest = waiter and core.impossible(waiter.cost)
    if not waiter or gone(waiter, caller) or largest then
      if largest then
        post(waiter.owner, format('x %s %d', id, largest))
      end
      core.unqueue(id, waiter ~= nil)
      drops = drops + 1
      if drops >= DROPS_MAX then
        S.due = S.now
        break
      end
    else
      local wait = core.blocked(waiter.cost)
      if wait ~= 0 or handoffs >= HANDOFFS_MAX then
        tell_head(id, waiter, wait, caller)
        break
      end
      hand_over(id, waiter, caller)
      handoffs = handoffs + 1
    end
  end
  if S.waiting == 0 then
    S.head, S.head_at = '-', 0
  end
  deliver()
end

-- A reply with what rides in it: grants to the caller's waiters, and the wait of its head.
function core.reply(...)
  return { ..., handed, head_id, head_wait }
end

-- What every verb ends with.
function core.close(caller)
  if S.waiting > 0 then
    core.serve(caller)
  end
  core.save()
end

function core.rides()
  return handed[1] or head_id ~= ''
end
