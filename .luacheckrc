-- Redis runs these with Lua 5.1 and three globals.
std = "lua51"
read_globals = { "redis", "KEYS", "ARGV", "cjson", "cmsgpack" }
max_line_length = 120

-- A verb of the limiter is checked apart from the fragments that it includes, which see its locals.
-- The whole text that Redis gets is checked by tests/unit/limiter/test_limiter_scripts.py.
local keys = { "key_state", "key_leases", "key_calls", "key_queue", "key_owners", "key_settings",
  "key_history" }
local shared = { "time", "clock_ms", "core", "S", "floor", "max", "min", "ceil", "format", "UNIT",
  "DEBT", "SENTINEL", "DONE", "LOST", "REMEMBERED_MS", "REMEMBERED_MAX", "HOUSE_MS", "MARGIN_MS",
  "HISTORY_MS", "text", "SILENT_MS", "HANDOFFS_MAX", "DROPS_MAX", "MAIL_MS", "handed", "head_id",
  "head_wait", "packed", "last", "offset", "due", "keep", "fence", "flying", "most", "rlevel", "rrate",
  "rcap", "rback", "tlevel", "trate", "tcap", "ttop", "cost_max", "refunds", "old_fence", "old_n",
  "old_high", "new_fence", "new_n", "new_high", "cold", "now", "hot", "freed", "taken", "id", "cost",
  "lease_ms", "used", "old_id", "old_fence_given" }
local function both(first, second)
  local all = {}
  for _, list in ipairs({ first, second }) do
    for _, name in ipairs(list) do
      all[#all + 1] = name
    end
  end
  return all
end
local fragment = { globals = both(keys, shared), ignore = { "211", "231", "241", "311", "331" } }
for _, name in ipairs({ "_time", "_state", "_buckets", "_leases", "_queue", "_acquire", "_release",
  "_hot", "_hot_release", "_hot_acquire", "_hot_save" }) do
  files["lua/" .. name .. ".lua"] = fragment
end
files["lua/limit_*.lua"] = { globals = shared, ignore = { "211", "311" } }
