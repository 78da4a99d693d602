mla_tests(bench parts TESTS random_fill synthetic measure work peak_loops bench_run attention_bench layer_bench profile tune crossover serve_load least)
target_link_libraries(bench_parts_test PRIVATE nlohmann_json::nlohmann_json)
