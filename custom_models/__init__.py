"""Networks, and the RLModules that plug them into RLlib.

``custom_models.nets`` holds plain ``torch.nn.Module`` classes that know no Ray; ``custom_models.q_module`` plugs them
into DQN, ``custom_models.actor_critic_module`` into PPO and its kind. This package itself imports none of them, so that
an exported policy loads where Ray is not installed.
"""
