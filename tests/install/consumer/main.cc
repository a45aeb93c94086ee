// A program outside the project: sees the installed headers and libchoral.so, nothing else.
#include <choral/llm.h>

#include <iostream>

int main() {
  const auto llm = choral::LLM::load({.model = "/no/such/model"});
  if (llm.ok() || llm.status().code() != choral::Code::kNotFound) {
    std::cerr << "loading a model that does not exist should say so\n";
    return 1;
  }
  std::cout << choral::version() << ": " << llm.status().to_string() << '\n';
  return 0;
}
