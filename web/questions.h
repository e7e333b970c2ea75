/* questions.h - what the page asks the module about itself. */
#ifndef WEB_QUESTIONS_H
#define WEB_QUESTIONS_H

/* Print the questions, with their subjects and parameters, on standard output as JSON. Returns an exit status. */
int web_print_questions(void);
/* Print the names of models and the cards that the form of "Will it fit?" suggests, in the same way. */
int web_print_lists(void);

#endif
