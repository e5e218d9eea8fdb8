"""What is done to a model beside teaching it: correct, forget, rename, merge, roll back."""
