// Runs one rendering of a parsed template: walks the tree, keeps scopes, counts steps, bytes and depth.
// Scopes follow Jinja: a loop body, macro, block set, filter block or with has its own; an if has none; a `set` inside
// never leaks out, what is read falls through to the outside. A scope is shared with the macros defined in it and emptied
// when it ends, which breaks the ring between the two.
// Thread-safety: one rendering, one thread; many may share one Ast.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/limits.h"
#include "text/jinja/object.h"

namespace choral::text::jinja {

struct Scope {
  std::vector<std::pair<int, Value>> variables;
  std::shared_ptr<Scope> parent;
  const Value* find(int name, uint64_t* looked_at) const;  // here or outside; adds how many variables were looked at
  void set(int name, Value value);                         // here
};
using ScopePtr = std::shared_ptr<Scope>;
ScopePtr inner_scope(const ScopePtr& parent);

class Interpreter {
 public:
  Interpreter(const Ast& ast, const RenderLimits& limits, std::optional<int64_t> now_unix_s);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  void define(std::string_view name, Value value);  // a variable of the outermost scope
  Result<std::string> render();

  // About the error that render() returned.
  int error_line() const { return error_line_; }
  bool raised() const { return raised_; }
  Status raise(std::string text);  // raise_exception

  const RenderLimits& limits() const { return limits_; }
  std::optional<int64_t> now_unix_s() const { return now_unix_s_; }

  // Everything is paid for before it is done. A node or an element is a step, and so is as much text as takes about as long.
  // Filters, tests and methods need not think of it for what they are given: unless they are listed as not linear, the call
  // pays for reading all of it (`pay`). What they make or read beyond that, they pay for themselves.
  Status step(uint64_t n = 1);                               // too_large past max_steps
  Status look(uint64_t bytes) { return step(bytes / 128); }  // memory compared, copied or searched
  Status walk(uint64_t bytes) { return step(bytes / 8); }    // characters decoded and classified
  Status compare_cost(const Value& a, const Value& b);       // of equal() and less()
  Status lookup_cost(const Value& key);                      // of finding a key in a dict or set
  Status pay(bool linear, const Value& subject, const Arguments& args);
  Status allocated(uint64_t bytes);   // too_large past max_allocated_bytes
  Status check_text(uint64_t bytes);  // before a text of this size is made: max_string_bytes
  Status check_elements(uint64_t n);  // before a list of this length is made: max_elements
  Result<Value> list(Values items) { return make_list(std::move(items), limits_); }
  Result<Value> tuple(Values items) { return make_sequence(Kind::kTuple, std::move(items), limits_); }
  Result<Value> dict(Dict entries) { return make_dict(std::move(entries), limits_); }
  Result<Value> object(std::shared_ptr<Object> object) { return make_object(std::move(object), limits_); }
  Result<Value> iterator(Values items);                      // over these
  Result<Value> view(const Value& dict, Series::Type type);  // keys, values or items of a dict
  Value make_namespace(Dict attributes);

  // By name, as map, select and the like call them.
  Result<Value> apply(std::string_view kind, std::string_view name, const Value& subject, Arguments& args);

  // For macros and loops, which run tree again.
  enum class Flow { kNormal, kBreak, kContinue };
  Result<Value> eval(const Expr& expr, const ScopePtr& scope);
  Result<Flow> exec(const Body& body, const ScopePtr& scope, std::string* out);
  Status assign(const Expr& target, Value value, const ScopePtr& scope);
  const Ast& ast() const { return ast_; }
  Nesting nested() { return Nesting(&depth_); }  // held while a value or call is within another
  Status check_depth() const;                    // too_large past max_eval_depth

 private:
  Result<Value> eval_node(const Expr& expr, const ScopePtr& scope);
  Result<Value> eval_name(const Expr& expr, const ScopePtr& scope);
  Result<Value> eval_dict(const Expr& expr, const ScopePtr& scope);
  Result<Value> eval_concat(const Expr& expr, const ScopePtr& scope);
  Result<Value> eval_compare(const Expr& expr, const ScopePtr& scope);
  Result<Value> eval_call(const Expr& expr, const ScopePtr& scope);
  Result<Value> eval_builtin(const Expr& expr, const ScopePtr& scope, const Value* block);  // a filter (of a block) or test
  Result<Values> eval_all(const std::vector<ExprPtr>& exprs, const ScopePtr& scope);        // None where there is none
  Result<Arguments> eval_arguments(const Expr& call, const ScopePtr& scope);
  Result<Value> charged(Result<Value> made);

  Result<Flow> exec_stmt(const Stmt& stmt, const ScopePtr& scope, std::string* out);
  Result<Flow> exec_for(const Stmt& stmt, const ScopePtr& outer, std::string* out);
  Result<Flow> exec_capture(const Stmt& stmt, const ScopePtr& scope, std::string* out);
  Status append(std::string_view text, std::string* out);

  const Ast& ast_;
  const RenderLimits& limits_;
  std::optional<int64_t> now_unix_s_;
  ScopePtr root_;
  std::vector<std::shared_ptr<Namespace>> kept_;  // they can hold values after their creation, rings too: emptied at the end
  int64_t steps_left_;
  int64_t bytes_left_;
  int depth_ = 0;
  int error_line_ = 0;
  bool raised_ = false;
};

}  // namespace choral::text::jinja
