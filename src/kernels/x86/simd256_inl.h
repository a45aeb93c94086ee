// The 256-bit vector operations of quant_kernel_inl.h and int8_kernel_inl.h: what simd512_inl.h has, half as wide.
// Included inside an unnamed namespace with CHORAL_SIMD defined; no include guard.

struct Simd256 {
  using Bytes = __m256i;
  using Ints = __m256i;
  using Floats = __m256;
  static constexpr int kVectors = 2;

  static CHORAL_SIMD Bytes load(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static CHORAL_SIMD void store(uint8_t* p, Bytes v) { _mm256_store_si256(reinterpret_cast<__m256i*>(p), v); }
  static CHORAL_SIMD Bytes low_nibbles(Bytes v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
  static CHORAL_SIMD Bytes high_nibbles(Bytes v) { return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15)); }
  static CHORAL_SIMD Bytes lookup(const uint8_t* table, Bytes codes) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table))), codes);
  }
  // nibbles | (v << kLeft & kMask), byte by byte; a negative kLeft shifts right.
  template <int kLeft, int kMask>
  static CHORAL_SIMD Bytes or_bits(Bytes nibbles, Bytes v) {
    const Bytes shifted = kLeft >= 0 ? _mm256_slli_epi16(v, kLeft < 0 ? 0 : kLeft) : _mm256_srli_epi16(v, kLeft < 0 ? -kLeft : 0);
    return _mm256_or_si256(nibbles, _mm256_and_si256(shifted, _mm256_set1_epi8(kMask)));
  }
  static CHORAL_SIMD Bytes broadcast(const int8_t* four) {
    int32_t word;
    std::memcpy(&word, four, sizeof word);
    return _mm256_set1_epi32(word);
  }

  static CHORAL_SIMD Bytes zeros() { return _mm256_setzero_si256(); }
  static CHORAL_SIMD Ints load_ints(const int32_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
  static CHORAL_SIMD void store_ints(int32_t* p, Ints v) { _mm256_store_si256(reinterpret_cast<__m256i*>(p), v); }
  static CHORAL_SIMD Ints splat_int(int32_t v) { return _mm256_set1_epi32(v); }
  static CHORAL_SIMD Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
  static CHORAL_SIMD Floats to_floats(Ints v) { return _mm256_cvtepi32_ps(v); }
  static CHORAL_SIMD Floats halves(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static CHORAL_SIMD Floats unsigned_bytes(const uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  // Of each byte the four bits from kFrom on.
  template <int kFrom>
  static CHORAL_SIMD Floats nibbles(const uint8_t* p) {
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(bytes, kFrom), _mm256_set1_epi32(15)));
  }
  static CHORAL_SIMD Floats signed_bytes(const uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static CHORAL_SIMD Floats load_floats(const float* p) { return _mm256_load_ps(p); }
  static CHORAL_SIMD void store_floats(float* p, Floats v) { _mm256_store_ps(p, v); }
  static CHORAL_SIMD Floats splat(float v) { return _mm256_set1_ps(v); }
  static CHORAL_SIMD Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static CHORAL_SIMD Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static CHORAL_SIMD Floats negate(Floats v) { return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f)); }
};
