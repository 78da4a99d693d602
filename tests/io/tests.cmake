mla_tests(io parts TESTS checkpoint json new_folder safetensors)
mla_test(io memory)
