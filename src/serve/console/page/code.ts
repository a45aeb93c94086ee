// Colours of code. The languages that models are asked for most.
import hljs from "highlight.js/highlight";
import bash from "highlight.js/languages/bash";
import cpp from "highlight.js/languages/cpp";
import css from "highlight.js/languages/css";
import diff from "highlight.js/languages/diff";
import go from "highlight.js/languages/go";
import java from "highlight.js/languages/java";
import javascript from "highlight.js/languages/javascript";
import json from "highlight.js/languages/json";
import python from "highlight.js/languages/python";
import rust from "highlight.js/languages/rust";
import sql from "highlight.js/languages/sql";
import typescript from "highlight.js/languages/typescript";
import xml from "highlight.js/languages/xml";
import yaml from "highlight.js/languages/yaml";

const kLanguages = { bash, cpp, css, diff, go, java, javascript, json, python, rust, sql, typescript, xml, yaml };
for (const [name, language] of Object.entries(kLanguages)) hljs.registerLanguage(name, language);

const kMostCharacters = 50_000; // beyond, colours cost more than they tell

// HTML of spans; null where the language is not known.
export function coloured(text: string, language: string): string | null {
  if (text.length > kMostCharacters || !hljs.getLanguage(language)) return null;
  return hljs.highlight(language, text, true).value;
}
