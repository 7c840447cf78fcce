"""Which of RLlib's settings our algorithms obey, and what may stand in them."""

from __future__ import annotations

from collections.abc import Mapping

from ray.tune.result import STDERR_FILE, STDOUT_FILE, TRIAL_INFO

from rayground.algorithms.limits import Number

SUPPORTED = frozenset(
    {
        "algo_class",
        "callbacks_class",
        "callbacks_on_algorithm_init",
        "callbacks_on_checkpoint_loaded",
        "callbacks_on_environment_created",
        "callbacks_on_episode_created",
        "callbacks_on_episode_end",
        "callbacks_on_episode_start",
        "callbacks_on_episode_step",
        "callbacks_on_evaluate_end",
        "callbacks_on_evaluate_start",
        "callbacks_on_sample_end",
        "callbacks_on_train_result",
        "clip_rewards",
        "custom_resources_per_env_runner",
        "disable_env_checking",
        "env",
        "env_config",
        "env_runner_cls",
        "evaluation_config",
        "evaluation_duration",
        "evaluation_interval",
        "evaluation_sample_timeout_s",
        "gamma",
        "grad_clip",
        "grad_clip_by",
        "gym_env_vectorize_mode",
        "in_evaluation",
        "local_gpu_idx",
        "log_level",
        "log_sys_usage",
        "lr",
        "max_num_env_runner_restarts",
        "metrics_num_episodes_for_smoothing",
        "min_sample_timesteps_per_iteration",
        "model_config",
        "num_cpus_for_main_process",
        "num_cpus_per_env_runner",
        "num_cpus_per_learner",
        "num_env_runners",
        "num_envs_per_env_runner",
        "num_gpus_per_env_runner",
        "num_gpus_per_learner",
        "num_learners",
        "optimizer",
        "policies",
        "restart_failed_env_runners",
        "restart_failed_sub_environments",
        "rollout_fragment_length",
        "sample_timeout_s",
        "seed",
        "torch_compile_learner",
        "train_batch_size",
    }
)
"""Settings that every algorithm of ours obeys; each adds its own. Others must keep their default value."""

RLLIBS_OWN = frozenset({"class", "simple_optimizer", TRIAL_INFO, STDOUT_FILE, STDERR_FILE})
"""What RLlib itself puts into a config when it is made from a state and when it is validated; then, what Tune puts."""

NUMBERS: Mapping[str, Number] = {
    "evaluation_duration": Number(1, whole=True),
    "evaluation_interval": Number(0, whole=True, optional=True),
    "evaluation_sample_timeout_s": Number(0, optional=True),
    "gamma": Number(0, 1),
    "grad_clip": Number(0, above=True, optional=True),
    "local_gpu_idx": Number(0, whole=True),
    "max_num_env_runner_restarts": Number(0, whole=True),
    "metrics_num_episodes_for_smoothing": Number(1, whole=True),
    "min_sample_timesteps_per_iteration": Number(0, whole=True, optional=True),
    "num_cpus_for_main_process": Number(0),
    "num_cpus_per_env_runner": Number(0),
    "num_env_runners": Number(0, whole=True),
    "num_envs_per_env_runner": Number(1, whole=True),
    "num_gpus_per_env_runner": Number(0, 1),
    "num_gpus_per_learner": Number(0, 1),
    "num_learners": Number(0, whole=True),
    "sample_timeout_s": Number(0),
    "seed": Number(0, whole=True),
    "train_batch_size": Number(1, whole=True),
    "train_batch_size_per_learner": Number(1, whole=True),
}
"""What is a number in every algorithm of ours; each adds its own."""

EVALUATION = ("env", "env_config", "gym_env_vectorize_mode", "num_envs_per_env_runner")
"""What ``evaluation_config`` may change; evaluation takes all else from training, and is always greedy."""

FIRED = frozenset(
    """on_algorithm_init on_train_result on_evaluate_start on_evaluate_end on_checkpoint_loaded on_environment_created
    on_sample_end on_episode_created on_episode_start on_episode_step on_episode_end""".split()  # noqa: SIM905
)
"""The hooks of RLlib's callbacks that an algorithm of ours calls."""

HINTS = {
    "evaluation_num_env_runners": "leave it at 0: evaluation runs in the main process",
    "evaluation_duration_unit": "evaluation counts episodes",
    "observation_space": "the environment's own is used",
    "action_space": "the environment's own is used",
    "adam_epsilon": "use optimizer={'type': 'adam', 'eps': ...}",
    "num_atoms": "only expected values are learned",
    "training_intensity": "use replay_ratio, the number of updates per env step",
    "replay_buffer_config": "use replay=SlottedReplay(...)",
    "batch_mode": "rollouts are always cut at rollout_fragment_length",
    "exploration_config": "use epsilon for DQN, entropy_coeff for others",
    "model": "use rl_module(model_config={'fcnet_hiddens': [64, 64], ...}), or rl_module(rl_module_spec=...)",
    "min_time_s_per_iteration": "use min_sample_timesteps_per_iteration",
    "num_gpus": "use learners(num_gpus_per_learner=...)",
    "observation_filter": "use a net with normalize_observations=True",
    "train_batch_size": "set rollout_fragment_length (vector steps of a runner), of which its batches are made",
    "torch_compile_learner": "runners may compute its gradients; PPO, A2C and DQN can compile their updates",
}
"""What to do instead of a setting that is not supported."""

NEVER_CALLED = (
    "after_gradient_based_update",
    "apply_gradients",
    "before_gradient_based_update",
    "compute_gradients",
    "compute_losses",
    "postprocess_gradients",
    "postprocess_gradients_for_module",
)
"""Hooks of RLlib's learners that ours do without."""
