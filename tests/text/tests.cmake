add_executable(text_encode_tool ${CMAKE_CURRENT_SOURCE_DIR}/text/encode_main.cc)
target_link_libraries(text_encode_tool PRIVATE mla_all)
