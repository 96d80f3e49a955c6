"""Default values that several parts of the package share, each written once.

The planner, the verbs and the tasks take them from here; no other module repeats them.
"""

PRESET, TRANSLATION_PRESET = "tiny", "transformer-tiny"

# Tokens in a step, by the kind of device.
PRETRAIN_BATCH_TOKENS = {"cpu": 1_024, "cuda": 65_536}
TRANSLATION_BATCH_TOKENS = {"cpu": 2_048, "cuda": 16_384}
PRETRAIN_TIME = "30m"  # at most, where neither a duration nor a shape is given
STUDY_EPOCHS = 3.0  # of the pretraining of a study
FINETUNE_EPOCHS = 10.0  # of classification and of translation

# Held out of what is given, where no validation or test set is.
VALID_SHARE, TEST_SHARE = 0.1, 0.2
MASK_PROB = 0.15  # BERT's share of hidden tokens
RARE = 0.1  # share of the rows below which a class hardly counts in accuracy
