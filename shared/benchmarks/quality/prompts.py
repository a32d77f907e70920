"""What the quality probe asks, of kinds in which lost precision shows: facts, sums, code, order.

They never change: answers of different releases are compared.
"""

from typing import Final

PROMPTS: Final = (
    "What is the capital of Australia, and in which year was it founded?",
    "A train covers 240 km in 3 hours and then 180 km in 2 hours. What is its mean speed?",
    "Write a Python function that returns the longest common prefix of a list of strings.",
    "Translate into French: The library closes early on Friday, but opens again on Saturday.",
    "Explain in three sentences why the sky is blue during the day and red at sunset.",
    "List the planets of the solar system from the largest to the smallest.",
    "Rewrite as one formal sentence: hey, can't make it tmrw, let's do next week instead?",
    "If all roses are flowers and some flowers fade quickly, do some roses fade quickly? Why?",
    "What does this SQL return? SELECT city FROM person GROUP BY city HAVING count(*) > 10;",
    "Compute 17 * 23 + 144 / 12, step by step.",
    "Give the JSON object for a person named Ada, aged 36, with the languages English and French.",
    "Summarise in five words: Bees carry pollen between flowers, so that plants can form seeds.",
    "Name four causes of the First World War, one line each.",
    "Sort these words alphabetically: pear, apple, quince, fig, banana, cherry, date.",
    "What is the derivative of x^3 * sin(x) with respect to x?",
    "Write a haiku about a winter morning in a city.",
    "Convert 98.6 degrees Fahrenheit to Celsius and show the formula.",
    "Which is heavier, a litre of water or a litre of ice, and why?",
    "Write a shell command that prints the ten largest files below a directory.",
    "Who wrote 'Pride and Prejudice', and what is its first sentence?",
    "Translate into German: I would have called you if I had known that you were waiting.",
    "Find the error: for i in range(len(items)): if items[i] == items[i + 1]: print(i)",
    "What are the prime factors of 2310?",
    "Explain recursion to a child of ten in at most four sentences.",
    "Give three synonyms and three antonyms of 'brief'.",
    "A box has 3 red, 5 blue and 2 green balls. What is the chance of drawing two blue ones?",
    "Write the first ten numbers of the Fibonacci sequence.",
    "What is the difference between TCP and UDP? Answer in a short table.",
    "Continue the story with two sentences: The lighthouse keeper had not seen a ship for a month.",
    "Put these in order: moon landing, fall of the Berlin Wall, first flight of the Wrights.",
    "How many days are there from 14 March to 2 July of the same year?",
    "Write a regular expression that matches a date like 2024-03-14, and explain its parts.",
)
