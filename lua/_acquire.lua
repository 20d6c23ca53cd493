-- The decision, in this order: replay, impossible cost, the queue first, all layers at once.

-- Answer for an id that is granted, waiting or ended already; nil for a new one.
local function replay(id, owner)
  local score = redis.call('ZSCORE', key_leases, id)
  local fate = core.fate(score)
  if fate == 1 then
    return { 1, core.held(id) or 0, max(1, score - S.now), handed, head_id, head_wait }
  elseif fate then
    return { -1, handed, head_id, head_wait }
  end
  if not redis.call('ZSCORE', key_queue, id) then
    return nil
  end
  redis.call('ZADD', key_owners, text(S.now), owner)
  core.serve(owner)
  score = redis.call('ZSCORE', key_leases, id)
  fate = core.fate(score)
  if fate == 1 then
    return { 1, core.held(id) or 0, max(1, score - S.now), handed, head_id, head_wait }
  elseif fate then
    return { -1, handed, head_id, head_wait }
  end
  local place = redis.call('ZRANK', key_queue, id) + 1
  local wait, layers = -1, 16
  if place == 1 then
    wait, layers = core.blocked(core.waiter(id).cost)
  end
  return { 0, wait, layers, place, handed, head_id, head_wait }
end

local function granted(id, owner, cost, lease_ms)
  local fence = core.grant(id, cost, lease_ms, true)
  if S.waiting > 0 then
    core.serve(owner)
  end
  if handed[1] or head_id ~= '' then
    return { 1, fence, lease_ms, handed, head_id, head_wait }
  end
  return fence
end

function core.acquire(id, owner, cost, lease_ms, wait_ms, hold_ms, head_start_ms)
  local largest = core.impossible(cost)
  if S.waiting == 0 and not largest and core.blocked(cost) == 0
    and redis.call('ZADD', key_leases, 'NX', text(S.now + lease_ms), id) == 1 then
    return granted(id, owner, cost, lease_ms)
  end
  local answer = replay(id, owner)
  if answer then
    return answer
  elseif largest then
    return { -2, largest, handed, head_id, head_wait }
  end
  if S.waiting > 0 then
    core.serve(owner)
  end
  local first = S.waiting == 0
  local wait, layers = core.blocked(cost)
  if first and wait == 0 then
    redis.call('ZADD', key_leases, text(S.now + lease_ms), id)
    return granted(id, owner, cost, lease_ms)
  end
  if not first then
    layers = layers + 16
  end
  if wait_ms == 0 then
    S.refusals = S.refusals + 1
    return { 0, first and wait or -1, layers, 0, handed, head_id, head_wait }
  end
  core.park(id, owner, cost, lease_ms, hold_ms, wait_ms > 0 and S.now + wait_ms or 0, head_start_ms)
  local place = redis.call('ZRANK', key_queue, id) + 1
  if place == 1 then
    core.serve(owner)
  end
  return { 0, place == 1 and wait or -1, layers, place, handed, head_id, head_wait }
end
