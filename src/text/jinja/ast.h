// The syntax tree of a template. One struct for expressions and one for statements, told apart by `kind`: the tree is
// read by one evaluator only and small structs with named parts keep that evaluator short.
// Thread-safety: immutable after parsing, shared by all renderings.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace choral::text::jinja {

struct Expr;
struct Stmt;
struct FilterEntry;
struct TestEntry;
using ExprPtr = std::unique_ptr<Expr>;
using Body = std::vector<std::unique_ptr<Stmt>>;

enum class ExprKind : uint8_t {
  kConst,
  kName,
  kTuple,
  kList,
  kDict,
  kAnd,
  kOr,
  kNot,
  kNegate,
  kPositive,
  kBinary,
  kConcat,
  kCompare,
  kConditional,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kNamespaceRef,
};

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr spread;        // *args
  ExprPtr spread_named;  // **kwargs
};

struct Expr {
  ExprKind kind;
  int line;
  int depth = 1;                        // of the tree below, bounded by the parser
  int name = -1;                        // kName, kNamespaceRef: index into Ast::names
  Operator op = Operator::kAdd;         // kBinary
  std::vector<Operator> ops;            // kCompare: one per operand after the first
  Value constant;                       // kConst
  std::string text;                     // kAttribute, kNamespaceRef: attribute; kFilter, kTest: its name
  std::vector<ExprPtr> kids;            // operands in order; kDict: key, value, …; kSlice: start, stop, step (may be null);
                                        // kConditional: test, then, else (may be null); kFilter: subject (null in a block)
  CallArguments arguments;              // kCall, kFilter, kTest
  const FilterEntry* filter = nullptr;  // kFilter; null: unknown name on a path that may never run
  const TestEntry* test = nullptr;      // kTest
};

enum class StmtKind : uint8_t {
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kScope,
  kBreak,
  kContinue
};

struct MacroSignature {
  std::string name;  // empty for a call block
  std::vector<int> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
};

struct Stmt {
  StmtKind kind;
  int line;
  std::string data;          // kOutput: text, when `expr` is null
  ExprPtr expr;              // kOutput; kSet: value; kFor: iterable; kCallBlock: call; filter of the block kinds
  ExprPtr target;            // kSet, kSetBlock, kFor
  ExprPtr test;              // kFor … if
  bool recursive = false;    // kFor
  int name = -1;             // kMacro
  MacroSignature signature;  // kMacro, kCallBlock
  std::vector<std::pair<ExprPtr, Body>> branches;     // kIf: (test, body)…
  std::vector<std::pair<ExprPtr, ExprPtr>> bindings;  // kWith: (target, value)…
  Body body;
  Body else_body;  // kIf, kFor
};

struct Ast {
  Body body;
  std::vector<std::string> names;
  int loop_name = -1, caller_name = -1, kwargs_name = -1, varargs_name = -1;
};

}  // namespace choral::text::jinja
