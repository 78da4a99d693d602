mla_test(sampler sampler)
mla_test(sampler penalties)
