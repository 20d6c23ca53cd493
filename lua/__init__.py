"""Lua scripts, one verb a file; fragments shared between them start with an underscore."""

DISTRIBUTION = "rewardpool"
