mla_test(sampler sampler)
