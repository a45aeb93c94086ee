/* What the self-test shares: a tiny host, an opened device, and shorthands that stop the program when something is wrong.
 * One thread. */
#pragma once

#include <stdint.h>

#include "choral/plugin.h"

extern const choral_plugin* plugin;
extern choral_device* device;
extern choral_stream* stream;

void test_memory(void);
void test_copies(void);
void test_copies_beside(void);
void test_touching_faults(void);
void test_order_and_errors(void);
void test_small_floats(void);
void test_questions(void);
void test_weights(void);
void test_matmul(void);
void test_int8(void);
void test_rows(void);
void test_rotary(void);
void test_attention(void);
void test_fused(void);
void test_lora(void);

#define CHECK(condition) test_check((condition) != 0, #condition, __FILE__, __LINE__)
#define OK(call) test_ok((call), #call, __FILE__, __LINE__)
#define REFUSED(call, word) test_refused((call), word, #call, __FILE__, __LINE__)
void test_check(int good, const char* text, const char* file, int line);
void test_ok(choral_status* status, const char* text, const char* file, int line);
/* Refused, with `word` in the message. */
void test_refused(choral_status* status, const char* word, const char* text, const char* file, int line);

float noise(void); /* in [-1, 1), the same numbers in every run */
void fill(float* values, int64_t count);
void* to_device(const void* values, int64_t bytes);
void from_device(void* values, const void* memory, int64_t bytes);
choral_matrix matrix_to_device(const float* values, int64_t rows, int64_t cols, int64_t stride);
choral_vector vector_to_device(const float* values, int64_t size);
const choral_op* find_op(const choral_op* ops, int64_t count, const char* name); /* null: there is none */
/* The operator by its name, run with `args`. */
choral_status* run(const char* name, const void* args);
int near(double a, double b, double tolerance);
