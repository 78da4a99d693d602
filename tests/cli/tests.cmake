# The program itself, run as a user would.
mla_test(cli run)
mla_test(cli broken_input)
mla_test(cli inspect)
foreach(test run broken_input inspect)
  target_compile_definitions(cli_${test}_test PRIVATE MLA_PROGRAM="$<TARGET_FILE:mla>")
  target_link_libraries(cli_${test}_test PRIVATE nlohmann_json::nlohmann_json)
  add_dependencies(cli_${test}_test mla)
endforeach()
