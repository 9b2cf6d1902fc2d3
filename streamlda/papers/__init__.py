"""Systems of the papers, as published; nothing else imports them."""
