# The program itself, run as a user would.
mla_test(cli run)
mla_test(cli broken_input)
mla_test(cli hostile_input)
mla_test(cli inspect)
mla_test(cli perplexity)
mla_test(cli synth)
mla_test(cli permute_rope)
mla_test(cli kernels)
mla_test(cli verify)
mla_test(cli bench)
mla_test(cli bench_report)
mla_test(cli plan)
target_link_libraries(cli_bench_report_test PRIVATE mla_cli nlohmann_json::nlohmann_json)
foreach(test run broken_input hostile_input inspect perplexity synth permute_rope kernels verify bench plan)
  target_compile_definitions(cli_${test}_test PRIVATE MLA_PROGRAM="$<TARGET_FILE:mla>")
  target_link_libraries(cli_${test}_test PRIVATE nlohmann_json::nlohmann_json)
  add_dependencies(cli_${test}_test mla)
endforeach()

# The program with broken vector kernels in place of the real ones.
add_executable(mla_broken_kernels ${CMAKE_SOURCE_DIR}/src/cli/main/main.cc
  ${CMAKE_CURRENT_LIST_DIR}/broken_kernels/tables.cc)
get_property(broken_folders GLOBAL PROPERTY MLA_FOLDERS)
foreach(folder ${broken_folders})
  target_link_libraries(mla_broken_kernels PRIVATE mla_${folder})
endforeach()
if(MLA_X86 AND NOT MLA_SCALAR_ONLY)
  target_link_options(mla_broken_kernels PRIVATE -Wl,--wrap=_ZN3mla9attention16kAttentionAvx512E
    -Wl,--wrap=_ZN3mla9attention20kAttentionAvx512Bf16E -Wl,--wrap=_ZN3mla9attention13kAttentionAmxE
    -Wl,--wrap=_ZN3mla3ops8kOpsAvx2E)
endif()
target_compile_definitions(cli_kernels_test PRIVATE MLA_BROKEN_PROGRAM="$<TARGET_FILE:mla_broken_kernels>")
add_dependencies(cli_kernels_test mla_broken_kernels)
