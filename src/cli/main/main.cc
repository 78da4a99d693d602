#include "cli/app.h"

int main(int argc, char** argv) { return mla::cli::Main(argc, argv); }
