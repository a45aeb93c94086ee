// The vector intrinsics. g++ 12 takes the undefined pass-through operand of its own AVX-512 ones for a mistake (GCC bug 105593):
// files that use those include this first.
#pragma once

#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
