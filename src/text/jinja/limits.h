// What a template may cost. A chat template comes with a model directory, its input with a request: both are hostile.
// The interpreter counts instead of timing, so the same input always ends the same way on every machine.
// Every limit that is passed ends the rendering with too_large and the name of the limit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace choral::text::jinja {

struct RenderLimits {
  size_t max_template_bytes = size_t{1} << 20;
  int max_parse_depth = 200;                       // nesting of tags and of expressions, each
  int max_eval_depth = 1000;                       // nested evaluations; a macro call takes about six
  int64_t max_steps = 50'000'000;                  // see Interpreter::step, look, walk
  int64_t max_allocated_bytes = int64_t{1} << 30;  // by strings and lists, summed over the rendering
  size_t max_string_bytes = size_t{64} << 20;      // one string value, and the output
  size_t max_elements = 2'000'000;                 // one list or dict, counted with all that it holds
  int max_value_depth = 200;                       // lists in lists; also of the JSON input
};

// Counts one level of nesting while it lives.
class Nesting {
 public:
  explicit Nesting(int* depth) : depth_(depth) { ++*depth_; }
  ~Nesting() { --*depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  int* depth_;
};

}  // namespace choral::text::jinja
