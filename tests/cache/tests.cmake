mla_tests(cache parts TESTS latent_cache page_pool prefix_index)
