# The program itself, run as a user would.
mla_tests(cli program TESTS run broken_input hostile_input inspect perplexity synth permute_rope kernels verify bench
  bench_report plan tune chat serve)
target_link_libraries(cli_program_test PRIVATE mla_cli nlohmann_json::nlohmann_json)
target_compile_definitions(cli_program_test PRIVATE MLA_PROGRAM="$<TARGET_FILE:mla>")
add_dependencies(cli_program_test mla)

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
target_compile_definitions(cli_program_test PRIVATE MLA_BROKEN_PROGRAM="$<TARGET_FILE:mla_broken_kernels>")
add_dependencies(cli_program_test mla_broken_kernels)
