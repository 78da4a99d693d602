mla_test(cache latent_cache)
mla_test(cache page_pool)
mla_test(cache prefix_index)
