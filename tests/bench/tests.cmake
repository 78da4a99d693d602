mla_test(bench random_fill)
mla_test(bench synthetic)
target_link_libraries(bench_synthetic_test PRIVATE nlohmann_json::nlohmann_json)
