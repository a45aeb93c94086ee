"""A worker of NVIDIA Dynamo: `python -m choral.dynamo --model MODEL`. docs/serving/dynamo.md"""
