# Compiler settings of every target. No -march and no per-file ISA flags: CPU levels are chosen at run time.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

string(REGEX MATCH "^(x86_64|AMD64|i.86)$" CHORAL_X86 "${CMAKE_SYSTEM_PROCESSOR}")

add_library(choral_flags INTERFACE)
# Sizes and indices are int64_t, and convert to the library's unsigned ones where they are used: sign conversions are not warned of.
target_compile_options(choral_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wno-psabi
  -Wno-ignored-attributes -fvisibility=hidden
  -ffp-contract=off)  # an FMA stands where the source says so: invariant 1
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(choral_flags INTERFACE -Wno-restrict)  # false alarms of std::string's operator+ (GCC bug 105651)
endif()
target_include_directories(choral_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
# Highway levels built: baseline, SSE4, AVX2, AVX-512; NEON alone elsewhere, for the kernels keep vectors in arrays, which SVE cannot.
if(CHORAL_X86)
  target_compile_definitions(choral_flags INTERFACE "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_AVX3_DL)")
else()
  target_compile_definitions(choral_flags INTERFACE "HWY_DISABLED_TARGETS=(HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)")
endif()

# What a build gives away when a bound is wrong after all: buffers checked by the compiler and libc, canaries, no writable table of
# functions, an address that changes with each start, marked targets of jumps. Sanitizers check more, and a debug build can't.
if(NOT CHORAL_SANITIZE)
  include(CheckPIESupported)
  check_pie_supported()
  target_compile_options(choral_flags INTERFACE -fstack-protector-strong -fstack-clash-protection
    $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=2>
    $<$<BOOL:${CHORAL_X86}>:-fcf-protection=full>)
  target_link_options(choral_flags INTERFACE LINKER:-z,relro,-z,now,-z,noexecstack)
endif()
if(CHORAL_SANITIZE)
  target_compile_options(choral_flags INTERFACE -fsanitize=${CHORAL_SANITIZE} -fno-omit-frame-pointer -g -fno-sanitize-recover=all)
  target_link_options(choral_flags INTERFACE -fsanitize=${CHORAL_SANITIZE})
endif()
if(CHORAL_BUILD_FUZZERS)
  target_compile_options(choral_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# Paths are taken relative to the checkout, so that a second clone finds what the first one compiled.
find_program(CHORAL_CCACHE ccache)
if(CHORAL_CCACHE)
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CHORAL_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
endif()
