// A program outside the project: sees the installed headers and libchoral.so, nothing else.
#include <choral/llm.h>

#include <iostream>

// Every record that a caller fills in can be written by the names of a few of its fields without a warning.
choral::Request all_kinds_of_fields() {
  return {.messages = {{.role = "user", .content = "Hello"}},
          .adapters = {{.scale = 0.5F}},
          .sampling = {.max_tokens = 8, .temperature = 0},
          .structured_output = {.kind = choral::StructuredOutput::Kind::kJsonObject}};
}

int main() {
  if (all_kinds_of_fields().sampling.max_tokens != 8) return 1;
  const auto llm = choral::LLM::load({.model = "/no/such/model"});
  if (llm.ok() || llm.status().code() != choral::Code::kNotFound) {
    std::cerr << "loading a model that does not exist should say so\n";
    return 1;
  }
  std::cout << choral::version() << ": " << llm.status().to_string() << '\n';
  return 0;
}
