mla_test(io checkpoint)
mla_test(io json)
mla_test(io new_folder)
mla_test(io safetensors)
