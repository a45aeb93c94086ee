// One completion. Every error is a value with a code: nothing throws, nothing is printed behind the program's back.
#include <choral/llm.h>

#include <iostream>

namespace {

int fail(const choral::Status& status) {
  std::cerr << status.to_string() << '\n';
  return choral::exit_code(status.code());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: " << argv[0] << " MODEL PROMPT\n";
    return 2;
  }
  choral::EngineOptions options;
  options.model = argv[1];
  auto llm = choral::LLM::load(options);
  if (!llm.ok()) return fail(llm.status());

  choral::Request request;
  request.prompt = argv[2];
  request.sampling = (*llm)->default_sampling();
  request.sampling.max_tokens = 32;
  request.sampling.temperature = 0;
  const choral::RequestOutput output = (*llm)->generate({request}).front();
  if (!output.status.ok()) return fail(output.status);

  const choral::Completion& completion = output.completions.front();
  std::cout << completion.text << '\n';
  std::cerr << completion.token_ids.size() << " tokens, " << choral::finish_reason_name(completion.finish_reason) << '\n';
  return 0;
}
