mla_tests(contract parts TESTS config families config_quant fp8 generation published rope_rows scales tensors tiny_checkpoint)
