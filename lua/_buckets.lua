-- The two buckets: refilled, asked, charged, and given back to without minting.

-- Bring levels, their highest marks and the pause to now.
function core.refill()
  local passed = S.now - S.last
  if passed > 0 then
    if S.rrate > 0 then
      S.rlevel = min(S.rcap, S.rlevel + S.rrate * passed)
    end
    if S.trate > 0 then
      S.tlevel = min(S.ttop, S.tlevel + S.trate * passed)
    end
    S.last = S.now
  end
  core.mark(min(S.tlevel, S.tcap))
  if S.pause > 0 and S.pause <= S.now then
    S.pause = 0
  end
end

function core.mark(level)
  S.old_high = max(S.old_high, level)
  S.new_high = max(S.new_high, level)
end

-- The largest cost that is possible when this one is not; nil when it is.
function core.impossible(cost)
  if S.trate <= 0 then
    return nil
  elseif cost > S.cost_max then
    return S.cost_max
  elseif S.alone == 0 and cost * UNIT > S.tcap then
    return S.tcap / UNIT
  end
  return nil
end

-- How long until this cost fits, and which layers say no: 0 fits now, -1 nobody knows.
-- Layers: 1 concurrency, 2 requests, 4 tokens, 8 pause.
function core.blocked(cost)
  local wait, layers = 0, 0
  if S.pause > S.now then
    wait, layers = S.pause - S.now, 8
  end
  if S.max >= 0 and S.flying >= S.max then
    local place = core.place_wait()
    if place ~= 0 then
      layers = layers + 1
      wait = (place < 0 or wait < 0) and -1 or max(wait, place)
    end
  end
  if S.rrate == 0 then
    wait, layers = -1, layers + 2
  elseif S.rrate > 0 and S.rlevel < UNIT then
    layers = layers + 2
    wait = wait < 0 and -1 or max(wait, ceil((UNIT - S.rlevel) / S.rrate))
  end
  if S.trate == 0 then
    wait, layers = -1, layers + 4
  elseif S.trate > 0 then
    local need = cost * UNIT
    if need > S.tcap and S.strict == 0 then
      need = S.tcap -- alone, from a full bucket, into debt
    end
    if S.tlevel < need then
      layers = layers + 4
      wait = wait < 0 and -1 or max(wait, ceil((need - S.tlevel) / S.trate))
    end
  end
  return wait, layers
end

-- Charge one request and `cost` tokens under S.fence; returns the base of the request's refund.
function core.charge(cost)
  if S.trate >= 0 then
    local level = min(S.tlevel, S.tcap)
    local after = max(-DEBT, level - cost * UNIT)
    if level >= S.tcap then -- full: whatever was charged before is on offer again
      S.old_fence, S.old_n, S.old_high = S.fence, 1, after
      S.new_fence, S.new_n, S.new_high = 0, 0, 0
    elseif S.old_fence == 0 then
      S.old_fence, S.old_n, S.old_high = S.fence, 1, after
    elseif S.new_fence == 0 then
      S.new_fence, S.new_n, S.new_high = S.fence, 1, after
    else
      S.new_n = S.new_n + 1
    end
    S.tlevel = after
  end
  if S.rrate >= 0 then
    S.rlevel = S.rlevel - UNIT
  end
  return S.rlevel - S.rback
end

-- Give `tokens` of the charge under `fence` back: at most what the bucket would hold more today
-- had they never been charged, which is capacity less its highest level since.
function core.refund(fence, tokens)
  if S.trate < 0 then
    return
  end
  local high = S.tcap
  if S.new_fence > 0 and fence >= S.new_fence then
    high = S.new_high
  elseif S.old_fence > 0 and fence >= S.old_fence then
    high = S.old_high
  end
  local back = min(tokens * UNIT, S.tcap - high)
  if back > 0 then
    S.tlevel = S.tlevel + back
    S.old_high = min(S.tcap, S.old_high + back)
    S.new_high = min(S.tcap, S.new_high + back)
  end
end

-- Give one request back. `base` and `granted` bound the highest level since by what could have
-- refilled and been given back in between.
function core.refund_request(fence, base, granted)
  if S.rrate < 0 or fence <= S.rfloor then
    return
  end
  local back = min(UNIT, S.rcap - (base + S.rback + S.rrate * (S.now - granted)))
  if back > 0 then
    S.rlevel = min(S.rcap, S.rlevel + back)
    S.rback = S.rback + back
  end
end

-- One charge fewer is open; when the older generation is settled the newer takes its place.
function core.settled(fence)
  if S.new_fence > 0 and fence >= S.new_fence then
    S.new_n = max(0, S.new_n - 1)
  elseif S.old_fence > 0 and fence >= S.old_fence then
    S.old_n = max(0, S.old_n - 1)
  end
  if S.old_n <= 0 then
    S.old_fence, S.old_n, S.old_high = S.new_fence, S.new_n, S.new_high
    S.new_fence, S.new_n, S.new_high = 0, 0, 0
    if S.old_n <= 0 then
      S.old_fence, S.old_n, S.old_high = 0, 0, 0
    end
  end
end

-- Nothing charged so far will be given back: capacities or rates have changed, or the state is new.
function core.forget_charges()
  S.old_fence, S.old_n, S.old_high = 0, 0, 0
  S.new_fence, S.new_n, S.new_high = 0, 0, 0
  S.rfloor, S.rback = S.fence, 0
end
