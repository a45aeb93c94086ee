// Tokens that come to a tokenizer from another's files: those that were added while a model was trained further, at the ids that
// they got there. Tokenizer::with_tokens() takes them up. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "text/added_tokens.h"

namespace choral::text {

// What a folder may hold; empty: no such file.
struct AddedTokenFiles {
  std::string tokenizer_json, tokenizer_config_json, added_tokens_json;
};

struct AddedTokenList {
  std::vector<AddedToken> tokens;  // all that were ever added, with their ids
  std::string eos_token;           // empty when the files name none
};

// Each file has all of them: the first that has any counts, of tokenizer_config.json (added_tokens_decoder), tokenizer.json
// (added_tokens) and added_tokens.json.
Result<AddedTokenList> read_added_token_list(const AddedTokenFiles& files);

}  // namespace choral::text
