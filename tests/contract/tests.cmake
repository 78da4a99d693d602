mla_test(contract config)
mla_test(contract generation)
mla_test(contract tensors)
mla_test(contract tiny_checkpoint)
