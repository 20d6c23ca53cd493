"""The files under examples/verl are what verl and the workers read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from worker.settings import load_settings

pytestmark = pytest.mark.verl
pytest.importorskip("verl.experimental.reward_loop")

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "verl"


def test_verls_trainer_reads_the_example() -> None:
    """By the command in the file; `--cfg job` prints the configuration instead of training."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo.reward import load_reward_manager

    command = [sys.executable, "-m", "verl.trainer.main_ppo", "--config-dir", str(EXAMPLES)]
    command += ["--config-name", "pool", "--cfg", "job", "--resolve"]
    env = {**os.environ, "REDIS_URL": "redis://elsewhere:6379/3"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    config = OmegaConf.create(done.stdout[done.stdout.index("actor_rollout_ref:") :])
    manager = load_reward_manager(
        config, None, reward_router_address=None, reward_model_tokenizer=None
    )
    assert manager.options.redis_url == "redis://elsewhere:6379/3"
    assert manager.options.on_failure == "raise"
    assert manager.options.extra_keys == ("overlong_reward",)


def test_verls_loader_makes_the_tools_of_the_example() -> None:
    from verl.tools.base_tool import BaseTool
    from verl.tools.tool_registry import load_all_tools

    tools = load_all_tools(str(EXAMPLES / "tools.yaml"), None)
    try:
        assert [tool.name for tool in tools] == ["code_interpreter", "search"]
        assert all(isinstance(tool, BaseTool) for tool in tools)
    finally:
        for tool in tools:
            tool.close()


def test_the_workers_settings_are_accepted() -> None:
    settings = load_settings(EXAMPLES / "rewardpool.toml", environ={})
    assert settings.reward.sources["math_dapo"].manager == "dapo"
