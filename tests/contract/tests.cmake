mla_test(contract tensors)
mla_test(contract tiny_checkpoint)
