"""Networks, and the RLModules that plug them into RLlib.

``custom_models.nets`` holds plain ``torch.nn.Module`` classes that know no Ray; ``custom_models.q_module`` plugs them
into DQN. This package itself imports neither, so that an exported policy loads where Ray is not installed.
"""
