add_executable(text_encode_tool ${CMAKE_CURRENT_SOURCE_DIR}/text/encode_main.cc)
target_link_libraries(text_encode_tool PRIVATE mla_all)

mla_tests(text parts TESTS utf8 bpe added_tokens pattern tokenizer tokenizer_file tiktoken_file pieces vectors)
mla_test(text stream_decoder UP_TO engine LABELS threads)
